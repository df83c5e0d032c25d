"""The valid objects that the other tests break are valid to begin with."""


def test_a_sample_of_every_kind_can_be_stored_and_read(house, samples, kind):
    collection = kind.target(namespace="default").path()
    obj = samples(kind)
    house.made(collection, obj)
    house.settle()
    house.readable(collection, obj["metadata"]["name"])
