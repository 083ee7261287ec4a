"""Out to the device: files for other runtimes, and how fast they run there."""
