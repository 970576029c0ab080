"""``maskreg retrain``: one run of TRL in one folder, from a request to the check of what it changed."""
