"""The parts of a simulation, which `podium.testing.simulator` runs.

They are a world of agents, hosts, nodes and clients, their faults, and the oracle that checks every write. Begin with
`world`. docs/internals/simulator.md says what is checked.
"""
