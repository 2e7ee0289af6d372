"""The screens of futures: the dialog that starts them, and the page that sets them side by side."""
