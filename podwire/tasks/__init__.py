"""Helpers for asyncio tasks that every component needs: keyed locks, uncancelled sections, debounce, back-off."""
