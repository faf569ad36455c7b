"""An embedded Ray of few processes, whose workers share their memory. Begin with `starting.py`."""
