"""The face to clients: OpenAI HTTP in, answers and events out.

app           the routes, from the body to the answer
connection    the socket, and what uvicorn sets no limit to
inbound       headers, the body within its limit, and the hang-up
catalogue     the names of models, who may use which, and for what
service       what the routes work with, and what each makes of a request
decoding      bodies to values; every refusal with the field's name
openai        the request types of generations, and what is refused by name
intake        a request that generates as a job
generations   the routes that generate: chat and completions
responses     the route of that name
values        routes that generate nothing: scores, embeddings, tokens
answer        what turns outputs into bodies and events
reply         a whole body, a stream of events, or an error
unrouted      what is asked of no route
deadline      how long answers may take
public_server until a signal, and how what runs ends then
stalls        clients that take nothing
doubts        what a tenant names that is not there
admin         tenants, keys, usage and the fleet, on a port of its own
"""
