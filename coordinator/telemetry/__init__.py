"""Metrics and traces of a home's processes. Begin with `instruments`.

Hosts record what their turns measure (`recorder`) and report it to the coordinator (`reports`), which has the sums; the
gateway shows them as Prometheus reads them (`exposition`). Traces go from each process to a collector by themselves
(`tracing`, `otlp`). See docs/observability.md.
"""
