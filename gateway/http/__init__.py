"""The face to clients: OpenAI HTTP in, answers and events out.

app         the routes, from the body to the answer
connection  the socket, and what uvicorn sets no limit to
inbound     headers, the body within its limit, and the hang-up
openai      the request types, and what is refused by name
intake      an OpenAI request as a job
answer      the response objects and their events
reply       a whole body, a stream of events, or an error
admin        the admin API: tenants, keys, usage, the fleet
admin_views  what it takes and gives
admin_server its own port in the same process
"""
