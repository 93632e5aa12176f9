"""The chart and the images, checked without a cluster: `python -m tests.deploy` is `make chart`.

charting    renders a profile, by Helm in process
settings    the programs' settings as JSON schema, for values.schema.json
strict      whether an object is what the API server knows
policies    what every pod of ours must have
references  whether what objects name is there
reach       who may connect to whom
bad_values  values that the chart must refuse
"""
