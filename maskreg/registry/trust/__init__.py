"""Who may write: the keys of projects, which of them this machine trusts, and whether a tag is signed by one."""
