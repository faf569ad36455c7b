"""Projects: their agent classes, configuration, environment and settings. Begin with `project`."""
