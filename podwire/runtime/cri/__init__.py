"""The server side of CRI: RuntimeService, ImageService, their messages, events, statistics and error codes."""
