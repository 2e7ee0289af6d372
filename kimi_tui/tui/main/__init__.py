"""The main screen: header, chat and timeline side by side, gauge, prompt or approval, footer."""
