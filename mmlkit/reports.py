"""Reports."""
__all__=["write_report","write_readme"]
def write_report(folders, out):
    """x"""
    return out
def write_readme(folders):
    """x"""
