"""What tasks do to save and restore embedding tables, and what they record about them."""
