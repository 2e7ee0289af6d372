"""What the views show, computed from the events, without a screen."""
