"""Many signals and updates, from several clients, while engines are killed: is each consumed and answered once?"""
