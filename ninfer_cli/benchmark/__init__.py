"""What `ninfer bench` measures, and how it is told."""
