"""What passed between the participants: recorded at the seams, collected, told as the story of one pod."""
