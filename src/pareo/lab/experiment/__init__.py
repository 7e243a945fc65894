"""One experiment: contestants in processes of their own, admitted by a gate, timed in turns."""
