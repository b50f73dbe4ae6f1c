package badger_test

const childDir = "WEIR_TEST_CHILD"

func child(dir string) {}
