"""How a process of Spark comes to the brokers: its login, and the clients that it keeps between tasks.

task_login  only the driver logs in by its settings, and tasks by a delegation token
token_life  when that token is renewed or replaced
clients     clients of this process, lent to one user at a time
worker      what a process does once, before its first client
"""
