"""What the trainer is compared with, each program written as its own documentation has it."""
