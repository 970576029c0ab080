"""Size, speed and memory of maskreg, beside other tools on the same data in the same run."""
