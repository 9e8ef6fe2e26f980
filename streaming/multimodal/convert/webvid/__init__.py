"""WebVid: videos and their captions."""
