"""What people use instead, each as its own documentation would write it."""
