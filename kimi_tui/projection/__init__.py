"""The models of the views (transcript, timeline, gauge, replay, comparison): reducers of events, without Textual."""
