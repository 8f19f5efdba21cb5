"""The numbers of endpoints (XDM reference X-3); the transporter's is the deployed one."""

PROGRAMS_ENDPOINT = 2
TRANSPORTER_ENDPOINT = 1
