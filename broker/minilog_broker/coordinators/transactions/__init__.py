"""The coordinator of transactions: producers enlist in generations, winners are named, markers end them everywhere."""
