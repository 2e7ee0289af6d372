"""The words that both programs show in their empty field; alone here, so that reading them costs no import."""

READY = "sk for a change"
"""Words of the empty field's hint, after the cursor."""
