"""What the commands `chronicle` and `podium` share: how they write to standard output."""
