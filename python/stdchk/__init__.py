"""stdchk: checkpoint storage and clones of running processes."""
