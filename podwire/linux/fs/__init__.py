"""Files, mounts, overlay file systems and inotify."""
