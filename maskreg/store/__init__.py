"""Where bytes live: keys to small objects, in a directory, in a bucket or in memory, and the ref log on top."""
