"""What a user chose, and where each choice came from: environment, file or default."""

from maskreg.settings.file import add_remote, checked, remove_remote, set_value
from maskreg.settings.loading import Settings
from maskreg.settings.remotes import DEFAULT_JOBS, Remote, StoreOptions

__all__ = ["DEFAULT_JOBS", "Remote", "Settings", "StoreOptions", "add_remote", "checked", "remove_remote", "set_value"]
