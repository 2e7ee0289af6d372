"""An editor over the page: letters to the past, what a summary must keep, names."""
