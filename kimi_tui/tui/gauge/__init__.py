"""How full the window is: a pure model from events to a bar and figures, and the widget that draws it."""
