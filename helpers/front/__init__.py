"""What a reader touches: magics, widgets, command line, slides."""
