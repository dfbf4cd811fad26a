"""How the errors of a field's predictions go together: covariances of weighted sums, and draws."""

from geogp.field.joint.field_joint import FieldJoint

__all__ = ["FieldJoint"]
