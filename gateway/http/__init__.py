"""The face to clients: OpenAI HTTP in, answers and events out.

app           the routes, from the body to the answer
connection    the socket, and what uvicorn sets no limit to
inbound       headers, the body within its limit, and the hang-up
catalogue     the names of models, and who may use which
openai        the request types, and what is refused by name
intake        an OpenAI request as a job
answer        the response objects and their events
reply         a whole body, a stream of events, or an error
unrouted      what is asked of no route
deadline      how long answers may take
public_server until a signal, and how what runs ends then
stalls        clients that take nothing
doubts        what a tenant names that is not there
admin         tenants, keys, usage and the fleet, on a port of its own
"""
