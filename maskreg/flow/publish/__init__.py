"""Publishing: what moved since the last link, found by every process in what it holds, and coded as the next one."""
