"""`course site`: every lesson as a page of a website that needs no kernel, no server and no other host."""
