"""Clients of other makes: npm packages, run by Node.js. ``package.json`` pins them, direct or not."""
