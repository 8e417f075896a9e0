"""The built site: executed, rendered, checked, opened in a browser."""
