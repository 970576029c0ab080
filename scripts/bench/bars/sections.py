"""What a run of the bars measures, in this order."""

SECTIONS = ("codec", "commands", "threads", "start", "step", "install")
