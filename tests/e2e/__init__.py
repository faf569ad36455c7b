"""Tests of whole homes: real commands, services, Rays, mounts and agents. A package, as its tests share a service."""
