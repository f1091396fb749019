"""The disks of this broker: their threads, and the files that are its own."""
