"""The page of ``podium up --ui`` in headless Chromium, by the browser's own protocol. ``make browser`` runs it."""
