"""The runtime's chair of NRI: lets plugins in, tells them what happens, and merges what they want changed."""
