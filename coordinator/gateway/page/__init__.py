"""The page of ``podium up --ui``: static files, served from this folder; begin with `files`."""
