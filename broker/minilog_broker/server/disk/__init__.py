"""The disks of this broker: their threads, and the files of the broker itself."""
