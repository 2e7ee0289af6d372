"""What the screens of a session have in common: header, chat and timeline side by side, notices, gauge and footer."""
