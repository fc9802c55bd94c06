"""An independent checker of codex-shim. It knows only the documentation, and reads only what the parties saw."""
